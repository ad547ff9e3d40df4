"""A program of each kind that lives by timers: an asyncio server, a game loop, a simulator, a suite of tests.

idle_server.py                connections that are closed when nothing came for a while
game_loop.py                  effects, cool-downs and a pause, counted in frames
simulator.py                  a queue with impatient customers, from event to event
retries.py, test_retries.py   a message that is tried again and again, and the suite that turns its hours by hand
"""
