"""Lesson 12: A smaller cache."""
