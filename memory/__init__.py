"""The domain of Mnemoray: its vocabulary and every decision, as pure functions.

Nothing in this package performs I/O, keeps global state, or imports Ray, asyncio or os.
The layers above carry decisions out.
"""
