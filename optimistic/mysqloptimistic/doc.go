// Package mysqloptimistic is optimistic on MySQL and MariaDB, with database/sql.
package mysqloptimistic
