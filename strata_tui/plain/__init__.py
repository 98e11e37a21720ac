"""The chat in plain lines, for screen readers, simple terminals and those who like their scrollback.

No alternate screen, no cursor movement, nothing that is drawn over: each line is written once. Same engine, same chats.
"""
