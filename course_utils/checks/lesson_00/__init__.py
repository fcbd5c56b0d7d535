"""Lesson 00's exercise, which is done together in the lesson."""
