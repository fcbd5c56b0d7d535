"""Lesson 04: masks, attention under a mask, a cache, and tests that catch a leak."""
