-- What sqlc has to know and no migration makes: goose creates this table.
CREATE TABLE dblock_schema_version (
    id         integer   PRIMARY KEY,
    version_id bigint    NOT NULL,
    is_applied boolean   NOT NULL,
    tstamp     timestamp NOT NULL
);
-- A column that every table has.
ALTER TABLE dblock_queue_ready ADD COLUMN ctid tid;
ALTER TABLE dblock_stock ADD COLUMN ctid tid;
ALTER TABLE dblock_quota ADD COLUMN ctid tid;
ALTER TABLE dblock_reservation ADD COLUMN ctid tid;
