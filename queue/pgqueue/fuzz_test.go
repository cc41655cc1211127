package pgqueue

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// FuzzNews: any session may notify. What is read is what the payload says, and never one's own.
func FuzzNews(f *testing.F) {
	d := &database{sender: "0123456789abcdef"}
	other := &database{sender: "fedcba9876543210"}
	for _, payload := range []string{
		"", "jobs ", "jobs :", "word :", "word x:zz", "jobs x:default", "jobs 0123456789abcdef:default", "work x:y", "jobs x:\x00\xff",
		other.payload(driver.Notification{Member: member.ID{1}}), other.payload(driver.Notification{Queue: "default"}), "word x:00",
	} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		n, ok := d.notification(payload)
		if !ok {
			if n != (driver.Notification{}) {
				t.Errorf("%q is refused, and read as %+v", payload, n)
			}
			return
		}
		_, rest, _ := strings.Cut(payload, " ")
		sender, what, _ := strings.Cut(rest, ":")
		if sender == d.sender {
			t.Errorf("%q is its own", payload)
		}
		if n.IsOfJobs() && n.Queue != what || !n.IsOfJobs() && n.Member.String() != strings.ToLower(what) {
			t.Errorf("%q is read as %+v", payload, n)
		}
	})
}
