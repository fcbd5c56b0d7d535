"""Lesson 00: its one exercise, which is in the lesson itself."""
