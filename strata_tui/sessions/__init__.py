"""Chats on disk: the store, search, branches of a chat, export and import."""
