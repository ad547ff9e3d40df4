from waterclock.purgatory.waiting import Waker as Waker
