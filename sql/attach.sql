-- A catalog in memory that every cursor of the database sees; nothing of it goes into the user's file.
ATTACH IF NOT EXISTS ':memory:' AS dp;
