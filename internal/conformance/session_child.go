package conformance

// Main does what a test has started this process for, and then never returns. Call it first in TestMain.
func (e Session) Main() {}
