-- Locks runs ($1) in the order of their numbers, as every UPDATE of many does. What the next statement reads about them stays
-- as it is until the transaction ends.
SELECT FROM runs WHERE num = ANY ($1::bigint[]) ORDER BY num FOR NO KEY UPDATE
