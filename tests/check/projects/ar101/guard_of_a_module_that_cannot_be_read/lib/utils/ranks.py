def is_main_process[**P]( =
