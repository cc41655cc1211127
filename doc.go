// Package dblock is the contract of a toolkit of relational locks: what the engines for Postgres
// and for MySQL/MariaDB have in common, and nothing that needs a driver.
//
// This package holds the errors that every part of the toolkit shares. What you build with lives
// below it:
//
//	inventory     stock that many buyers want at once: sell exactly what there is
//	  pginventory     … on Postgres, with pgx
//	  mysqlinventory  … on MySQL and MariaDB, with database/sql
//	migrations    the tables, as goose files, and the calls that apply them
//	cmd/dblock    the command-line tool: demo, migrate
package dblock
