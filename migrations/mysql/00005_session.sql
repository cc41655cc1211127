-- +goose Up
-- One row a session lock that was held for longer than a second: the server knows it by a hash, and people by its key. Nothing
-- depends on it.
CREATE TABLE IF NOT EXISTS dblock_session_key (
    lock_id   VARBINARY(64)  NOT NULL PRIMARY KEY,
    namespace VARBINARY(255) NOT NULL,
    lock_key  VARBINARY(512) NOT NULL,
    noted_at  DATETIME(6)    NOT NULL DEFAULT (ADDTIME(UTC_TIMESTAMP(6), 0))
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS dblock_session_key;
