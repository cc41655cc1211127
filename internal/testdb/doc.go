// Package testdb gives tests a database of their own on a real server. Only tests import it.
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
//	func TestX(t *testing.T) {
//		t.Parallel()
//		pool := testdb.Postgres(t) // an empty database, dropped when the test ends
//		...
//	}
//
// Each test process starts its servers once, at their first use, and closes them at the end. A
// server comes from a DSN in the environment, else from local binaries (internal/devdb), else from
// Docker; DBLOCK_TEST_DOCKER=1 puts Docker first.
//
// Engines lists what is under test. A test that is about several engines ranges over it. A package
// that is about one says so to Main, which then runs nothing when that engine is not selected:
//
//	func TestMain(m *testing.M) { testdb.Main(m, devdb.MariaDB, devdb.MySQL) }
package testdb
