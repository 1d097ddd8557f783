"""Guests of one preloaded process, for all tests here."""

from __future__ import annotations

from support.guests import guests

__all__ = ["guests"]
