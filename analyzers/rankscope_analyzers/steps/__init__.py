"""Step records: which are usable, tables of them, parallel layouts and clocks."""
