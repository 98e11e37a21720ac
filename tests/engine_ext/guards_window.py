"""Guards of the windows of drafts: what counts as use before it is known whether a draft is right."""

from __future__ import annotations

from guards import Guard

GUARDS = [
    Guard(
        "what only drafts pick keeps its place while the window is open",
        "window",
        "if (rows & 1) {",
        "if (rows) {",
        "test_window",
        ("window-drafts change no place",),
    ),
    Guard(
        "what the first token picks counts as used at once",
        "window",
        "st_residency_touch(r, slot);",
        "st_residency_hold(r, slot);",
        "test_window",
        ("window-the first token's picks are the last used",),
    ),
    Guard(
        "what drafts pick is not claimed in the same layer",
        "window",
        "st_residency_hold(r, slot);",
        "(void) slot;",
        "test_window",
        ("window-what a layer picks stays while it runs", "window-order", "r->state[s] != ST_SLOT_LOADING"),
    ),
    Guard(
        "what tokens that stand pick is the last used",
        "window",
        "use(w, stand, true);",
        "",
        "test_window",
        ("window-order",),
    ),
    Guard(
        "what rejected tokens pick goes behind it",
        "window",
        "use(w, stand, false);\n    use(w, stand, true);",
        "use(w, stand, true);\n    use(w, stand, false);",
        "test_window",
        ("window-order",),
    ),
    Guard(
        "... and in front of all else",
        "window",
        "use(w, stand, false);",
        "",
        "test_window",
        ("window-order",),
    ),
    Guard(
        "rejected tokens do not count",
        "window",
        "((UINT32_C(1) << stand) - 1)",
        "UINT32_MAX",
        "test_window",
        ("window-usage counts what stands",),
    ),
    Guard(
        "a window counts no expert without limit",
        "window",
        "(count < ST_USAGE_MOST ? count : ST_USAGE_MOST)",
        "count",
        "test_window",
        ("window-usage counts what stands",),
    ),
    Guard(
        "what a later layer took is left alone",
        "window",
        "slot >= 0 && (",
        "(",
        "test_window",
        ("s >= 0 && s < r->n_slots",),
    ),
    Guard(
        "a window that is settled is over",
        "window",
        "w->rows = 0;\n    w->n    = 0;\n}\n\nvoid st_window_free",
        "w->n = 0;\n}\n\nvoid st_window_free",
        "test_window",
        ("window-is over",),
    ),
    Guard(
        "another batch is none of the window's",
        "window",
        " && tokens == w->rows",
        "",
        "test_window",
        ("window-holds its own batch",),
    ),
]
