// Package answers holds the suites of what dblock makes of a server's answers, and that of
// migrations. Run replaces the answers of a real server, by errors of any code and by rows that no
// statement returns.
//
// # Promises
//
//   - Verdicts: Each error of a real server has the same class on every engine, also where it
//     is wrapped.
//   - Run: Whatever a server answers, no goroutine panics, errors are documented, and released
//     locks are free.
//   - OneAtATimeMigrates: Of concurrent migrations one runs at a time.
//   - ControlMeets: Without the lock they meet.
//   - ItsNameExcludes: Migrations with the same name exclude each other, those with others do
//     not.
//   - RefusesWhatMakesNoSense: A bad name or timeout is refused.
package answers
