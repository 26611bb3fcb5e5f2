-- Every step updates its run's row. An update that finds room on the row's page writes to no index (HOT), so more than half
-- of a page is left free: with a fill factor of 80 four of ten updates found no room. Pages written before keep theirs.
ALTER TABLE runs SET (fillfactor = 40);
