"""The parts of the HTML report: its text and drawings, its style and its scripts."""
