"""Lesson 13's exercises."""
