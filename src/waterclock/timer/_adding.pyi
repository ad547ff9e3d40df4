from waterclock.timer.adding import Adder as Adder
from waterclock.timer.adding import Touch as Touch
from waterclock.timer.adding import WayBack as WayBack
