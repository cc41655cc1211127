-- What sqlc has to know and no migration makes: goose creates this table.
CREATE TABLE dblock_schema_version (
    id         integer   PRIMARY KEY,
    version_id bigint    NOT NULL,
    is_applied boolean   NOT NULL,
    tstamp     timestamp NOT NULL
);
