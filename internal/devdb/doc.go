// Package devdb gives the demo, the benchmarks and the tests a database server: one that an
// environment variable names, or a throwaway one that it starts from the binaries on this machine.
//
// Start looks in this order and says through Options.Logf which one it took:
//
//  1. DBLOCK_POSTGRES_URL, or DBLOCK_MYSQL_DSN when that server is of the kind asked for
//     (MariaDB and MySQL share the variable; the server's VERSION() decides), DBLOCK_REDIS_URL or
//     DBLOCK_ETCD_URL;
//  2. local binaries: DBLOCK_POSTGRES_BIN (a folder with postgres and initdb), DBLOCK_MYSQLD (a
//     mariadbd or mysqld), DBLOCK_SERVERS_DIR (what scripts/fetch-servers.sh brought), and the
//     places where packages put them;
//  3. Options.Fallback, where the tests put Docker.
//
// A started server lives in a folder of its own below the temporary folder, listens on 127.0.0.1
// only and wants a random password. Started by root it runs as the user `nobody`, because database
// servers refuse to run as root. It does not outlive its parent: on Linux the kernel ends it even
// when the parent is killed with -9; elsewhere the next Start does. What such a parent left on the
// disk is removed by the next Start of the same user, which knows a dead folder by its free file
// lock.
//
// If DBLOCK_TEMPLATES names a folder, Start keeps there what an installer made, and starts the next
// server on a copy. The tests set it.
//
// Durable servers keep the server's own safe defaults, so that a benchmark's commits reach the
// disk. The others give durability up
// for speed, which is right for tests: they still survive a kill -9 of the server, only not a loss
// of power.
package devdb
