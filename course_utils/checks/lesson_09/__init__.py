"""Lesson 09's exercises."""
