"""Anima runs AI-agent Tasks durably on Temporal, each under one frozen soul."""

__version__ = "0.1.0"
