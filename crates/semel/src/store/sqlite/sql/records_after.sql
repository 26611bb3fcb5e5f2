-- Records of all kinds behind one of them, for an archive.
SELECT kind, id, version, body, at, expires
FROM records
WHERE (kind, id) > (?, ?)
ORDER BY kind, id
LIMIT ?
