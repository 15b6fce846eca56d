"""The parts of the HTML report: text and drawings, style and scripts."""
