-- +goose Up
-- One row a session lock that was held for longer than a second: the server knows it by a number, and people by its key. Nothing
-- depends on it.
CREATE TABLE dblock_session_key (
    lock_id   bigint           NOT NULL PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    lock_key  text COLLATE "C" NOT NULL,
    noted_at  timestamptz      NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE dblock_session_key;
