-- What the session has spent and what remains: SELECT dp.budget().remaining.
CREATE OR REPLACE MACRO dp.budget() AS dp_left();
