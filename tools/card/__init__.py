# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`make card`: all that meets a card, against a real one, in at most eight minutes; and what was other than with the stand-ins."""
