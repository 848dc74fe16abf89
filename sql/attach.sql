-- A catalog in memory, which every cursor of the database sees and which is never written to the user's file.
ATTACH IF NOT EXISTS ':memory:' AS dp;
