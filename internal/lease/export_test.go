package lease

// Known counts the handles that the Lockers of a share know.
func Known[Of any](s *Share[Of]) int {
	h := &s.reconciler.handles
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.known)
}

// Kept counts the locks and the handles of a Locker.
func Kept(l *Locker) (holds, handles int) {
	l.exclusive.holds.mu.Lock()
	defer l.exclusive.holds.mu.Unlock()
	l.reconciler.handles.mu.Lock()
	defer l.reconciler.handles.mu.Unlock()
	return len(l.exclusive.holds.all), len(l.reconciler.handles.known)
}
