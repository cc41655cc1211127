-- name: GetAccount :one
SELECT id, balance, version FROM account WHERE id = ?;

-- How many rows were hit: for optimistic.Rows. The version is one more then.
-- name: UpdateAccount :execrows
UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND version = ?;

-- name: DeleteAccount :execrows
DELETE FROM account WHERE id = ? AND version = ?;

-- The driver's own answer: for optimistic.Result.
-- name: TouchAccount :execresult
UPDATE account SET version = version + 1 WHERE id = ? AND version = ?;
