"""Workflows decide; they do no I/O and never see persona text."""
