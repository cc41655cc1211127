package bench

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"strings"
)

// chart is a picture of bars: a panel for each table of a report.
type chart []panel

// panel is the bars of one table. They share a scale.
type panel struct {
	title string
	bars  []bar
}

// bar is one scenario.
type bar struct {
	name      string
	perSecond float64
	text      string // beside the bar; default: perSecond
	ours      bool   // drawn in the color of dblock
}

// Sizes in pixels.
const (
	chartWidth  = 860
	chartMargin = 24
	nameWidth   = 230
	textWidth   = 190
	barHeight   = 22
	barGap      = 8
	titleHeight = 40
)

// write draws the chart as SVG. Text has the fonts of the reader's system, and colors that suit a
// light and a dark page.
func (c chart) write(w io.Writer) error {
	height := chartMargin
	for _, p := range c {
		height += titleHeight + len(p.bars)*(barHeight+barGap) + chartMargin/2
	}
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="14">`+"\n",
		chartWidth, height)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" rx="8" fill="#ffffff" stroke="#d0d7de"/>`+"\n", chartWidth, height)
	y := chartMargin
	for _, p := range c {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" font-weight="600" fill="#1f2328">%s</text>`+"\n", chartMargin, y+16, html.EscapeString(p.title))
		y += titleHeight
		y = p.draw(&svg, y) + chartMargin/2
	}
	svg.WriteString("</svg>\n")
	_, err := io.WriteString(w, svg.String())
	return err
}

// draw draws the bars below y, and returns where they end.
func (p panel) draw(svg *strings.Builder, y int) int {
	most := 1.0
	for _, b := range p.bars {
		most = max(most, b.perSecond)
	}
	for _, b := range p.bars {
		color, text := "#afb8c1", b.text
		if b.ours {
			color = "#1a7f64"
		}
		if text == "" {
			text = thousands(b.perSecond)
		}
		const left = chartMargin + nameWidth
		length := max(2, b.perSecond/most*(chartWidth-left-textWidth))
		baseline := y + barHeight - 6
		fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="end" fill="#1f2328">%s</text>`+"\n", left-10, baseline, html.EscapeString(b.name))
		fmt.Fprintf(svg, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="3" fill="%s"/>`+"\n", left, y, length, barHeight, color)
		fmt.Fprintf(svg, `<text x="%.1f" y="%d" fill="#1f2328">%s</text>`+"\n", left+length+8, baseline, html.EscapeString(text))
		y += barHeight + barGap
	}
	return y
}

// thousands writes a number without decimals, and with a comma after each third digit.
func thousands(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// panel is the chart's part of a report: the median rate of each scenario that finished a round.
func (b *suite) panel() panel {
	p := panel{title: fmt.Sprintf("%s %s, %d clients, a second", b.kind, b.server.Version, b.f.Clients)}
	for _, e := range b.entries {
		if len(e.results) > 0 {
			p.bars = append(p.bars, bar{name: e.Name, perSecond: summarize(e.results).rate.median})
		}
	}
	return p
}

// writeSVG writes the chart into the file of --svg.
func (r *benchmark) writeSVG() error {
	file, err := os.Create(r.f.SVG)
	if err != nil {
		return err
	}
	return errors.Join(r.chart.write(file), file.Close())
}
