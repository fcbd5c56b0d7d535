"""Lesson 13: A memory of fixed size."""
