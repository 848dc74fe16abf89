-- A catalog in memory, which every cursor of the database sees and which is never written to the user's file. It can be
-- written to although the user's file may only be read.
ATTACH IF NOT EXISTS ':memory:' AS dp (READ_WRITE);
