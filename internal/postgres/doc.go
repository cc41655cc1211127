// Package postgres is what every driver for Postgres needs. A file holds one idea:
//
//   - errors.go, codes.go: what an error means.
//   - schema.go, objects.go: where dblock's tables are, whether server and tables meet the
//     requirements, and statements with their schema.
//   - host.go, search_path.go: sessions of the host, which are checked before each statement.
//   - server.go, product.go: what is at the other end of a connection.
//   - pool.go: connections of dblock's own.
//   - listen.go: notifications.
//   - member.go: the rows of members.
//   - tx.go: transactions, their bounds and their end.
//   - values.go: ids and times as statements have them.
package postgres
