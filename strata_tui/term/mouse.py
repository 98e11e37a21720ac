"""Turning mouse reports on and off while the app runs.

Textual decides about the mouse once, at the start; its driver is asked here for more than it offers in public. While
reports are off, the terminal's own selection works without a modifier key.
"""

from __future__ import annotations

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

_PIXELS = "\x1b[?1016"  # reports in pixels, which some terminals offer


def set_mouse(driver: Driver | None, on: bool) -> bool:
    """Turns reports on or off; whether this driver can."""
    if not isinstance(driver, LinuxDriver):
        return False
    if on:
        driver._mouse = True  # also for a return from another program
        driver._enable_mouse_support()
    if driver._mouse_pixels:
        driver.write(f"{_PIXELS}{'h' if on else 'l'}")
    if not on:
        driver._disable_mouse_support()
        driver._mouse = False
    driver.flush()
    return True
