-- +goose Up
-- What this version changes on Postgres, room for updates, InnoDB does not need: it changes rows in place.
DO 0;

-- +goose Down
DO 0;
