-- Locks that the server keeps for a connection. What is done with them is text in Go: sqlc knows
-- neither their functions' types nor lists of them.

-- name: NoteSessionKeys :exec
INSERT INTO dblock_session_key (lock_id, namespace, lock_key)
VALUES /*dblock:rows*/(sqlc.arg(lock_id), sqlc.arg(namespace), sqlc.arg(lock_key))/*dblock:end*/
ON DUPLICATE KEY UPDATE noted_at = VALUES(noted_at);

-- name: DeleteSessionKeys :exec
DELETE FROM dblock_session_key WHERE noted_at < UTC_TIMESTAMP() - INTERVAL 1 DAY;

-- Those session locks whose keys were noted, and are held now. Others are not to be seen without
-- the server's own instruments.
-- name: ListSessionLocks :many
SELECT k.lock_id, k.namespace, k.lock_key, CAST(COALESCE(IS_USED_LOCK(k.lock_id), 0) AS SIGNED) AS conn_id
FROM dblock_session_key k
ORDER BY k.namespace, k.lock_key, k.lock_id
LIMIT 18446744073709551615;
