"""Errors that are meant for the person in front of the terminal."""

from __future__ import annotations


class UserError(Exception):
    """One clear sentence: what is wrong, where, and what to do. The command line exits with code 2."""
