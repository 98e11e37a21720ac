"""Chats on disk: the store, branches of a chat, export."""
