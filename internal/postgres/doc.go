// Package postgres is what every driver for Postgres needs, whatever it keeps there.
//
//   - errors.go classifies errors of the server and of pgx; codes.go has the SQLSTATEs that dblock tells apart.
//   - schema.go finds dblock's tables, checks them, and qualifies statements; objects.go reads their definitions.
//   - host.go checks sessions of the host's before each statement; search_path.go checks their search_path.
//   - server.go probes the server at the other end of a connection; product.go says which product that is.
//   - pool.go opens connections of dblock's own; listen.go listens on one of them.
//   - tx.go notices that a function of the host's has ended dblock's transaction.
package postgres
