// Package answers holds the suites of what dblock makes of a server's answers, and that of
// migrations. Run replaces the answers of a real server, by errors of any code and by other rows.
//
// # Promises
//
//   - Verdicts: Each error of a real server has the same class on every engine, also wrapped.
//   - Run: Any answer of a server: no panic, documented errors, and released locks are free.
//   - OneAtATimeMigrates: Of concurrent migrations one runs at a time.
//   - ControlMeets: Without the lock they meet.
//   - RefusesWhatMakesNoSense: A bad name or timeout is refused.
//
// TestOneSessionAtATime of internal/migratelock checks that migrations of the same name exclude
// each other, and that a timeout is ErrBusy.
package answers
