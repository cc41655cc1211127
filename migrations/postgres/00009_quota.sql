-- +goose Up
-- Room for two updates of each row on its page: who may take three comes back twice, and then the index is not written to.
ALTER TABLE dblock_quota SET (fillfactor = 45);

-- +goose Down
ALTER TABLE dblock_quota SET (fillfactor = 70);
