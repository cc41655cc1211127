-- name: GetAccount :one
SELECT id, balance, version FROM account WHERE id = $1;

-- The row as it has become, or none: for optimistic.One.
-- name: UpdateAccount :one
UPDATE account SET balance = $3, version = version + 1
WHERE id = $1 AND version = $2
RETURNING id, balance, version;

-- How many rows were hit: for optimistic.Rows.
-- name: DeleteAccount :execrows
DELETE FROM account WHERE id = $1 AND version = $2;

-- The driver's own answer: for optimistic.Tag.
-- name: TouchAccount :execresult
UPDATE account SET version = version + 1 WHERE id = $1 AND version = $2;
