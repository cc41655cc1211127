CREATE TABLE account (
    id      BIGINT PRIMARY KEY,
    balance BIGINT NOT NULL,
    version BIGINT NOT NULL DEFAULT 1
);
